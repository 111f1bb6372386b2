# What a hostile command tries: each probe in a process of its own, and what came of it, a line each.
import ctypes, errno, mmap, os, signal, socket, stat, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == 'x86_64'
# Calls that the C library does not have, on x86-64 and on arm64.
NUMBERS = dict(
    acct=(163, 89), add_key=(248, 217), bpf=(321, 280), fsopen=(430, 430), init_module=(175, 105), io_uring_setup=(425, 425),
    iopl=(172, 9999), kexec_load=(246, 104), keyctl=(250, 219), mount_setattr=(442, 442), move_mount=(429, 429),
    open_by_handle_at=(304, 265), open_tree=(428, 428), perf_event_open=(298, 241), pidfd_getfd=(438, 438),
    pidfd_send_signal=(424, 424), pivot_root=(155, 41), process_vm_readv=(310, 270), quotactl=(179, 60), reboot=(169, 142),
    settimeofday=(164, 170), swapon=(167, 224), syslog=(103, 116), userfaultfd=(323, 282))
HELD = [errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS, errno.ENOENT, errno.ENETUNREACH, errno.EXDEV, errno.EBUSY,
        errno.EADDRNOTAVAIL]
buffer = ctypes.create_string_buffer(4096)
vector = ctypes.create_string_buffer(struct.pack('QQ', ctypes.addressof(buffer), 8))
probes = {}

def call(name, *args):
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    ctypes.set_errno(0)
    if name in NUMBERS:
        got = libc.syscall(ctypes.c_long(NUMBERS[name][0 if X86 else 1]), *words)
    else:
        got = getattr(libc, name)(*words)
    if got == -1:
        raise OSError(ctypes.get_errno(), name)
    return got

def probe(name, what, *args):
    probes[name] = lambda: what(*args)

def calls(*names_and_args):
    for name, *args in names_and_args:
        probe(name, call, name, *args)

def write(path, text):
    with open(path, 'w') as file:
        file.write(text)

def read(path):
    with open(path, 'rb') as file:
        file.read(1)

# The runner.
calls(('ptrace', 16, 1, 0, 0), ('process_vm_readv', 1, vector, 1, vector, 1, 0))
probe('pidfd_getfd', lambda: call('pidfd_getfd', os.pidfd_open(1), 0, 0))
for name, look in dict(fd=os.listdir, root=os.listdir, exe=os.readlink, environ=read, maps=read).items():
    probe(f'/proc/1/{name}', look, f'/proc/1/{name}')
probe('/proc/1/oom_score_adj', write, '/proc/1/oom_score_adj', '1000')
for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
    probe(f'kill {number.name} 1', os.kill, 1, number)
    probe(f'pidfd {number.name} 1', lambda number=number: signal.pidfd_send_signal(os.pidfd_open(1), number))

# Namespaces and mounts.
for name, flag in dict(user=0x10000000, mnt=0x20000, net=0x40000000, pid=0x20000000).items():
    probe(f'unshare {name}', call, 'unshare', flag)
probe('setns', lambda: call('setns', os.open('/proc/self/ns/net', os.O_RDONLY), 0))
calls(
    ('mount', b'none', b'/tmp', b'tmpfs', 0, None), ('umount2', b'/workspace', 2), ('fsopen', b'tmpfs', 0),
    ('open_tree', -100, b'/', 1), ('move_mount', -100, b'/tmp', -100, b'/workspace', 0),
    ('mount_setattr', -100, b'/', 0, buffer, 32), ('pivot_root', b'/tmp', b'/tmp'), ('chroot', b'/tmp'),
    ('sethostname', b'x', 1))
probe('rmdir /workspace', os.rmdir, '/workspace')
probe('mv /workspace', os.rename, '/workspace', '/elsewhere')

# The kernel. A wrong magic reboots nothing, whoever asks.
calls(
    ('open_by_handle_at', -100, buffer, 0), ('bpf', 0, buffer, 0), ('userfaultfd', 0), ('io_uring_setup', 8, buffer),
    ('perf_event_open', buffer, 0, -1, -1, 0), ('keyctl', 0, 0), ('add_key', b'user', b'x', b'x', 1, -3),
    ('init_module', buffer, 0, b''), ('kexec_load', 0, 0, None, 0), ('reboot', 0, 0, 0, None), ('swapon', b'/none', 0),
    ('acct', b'/none'), ('settimeofday', struct.pack('qq', 0, 2000000), None), ('syslog', 5, None, 0), ('quotactl', 0, b'/none', 0, None),
    ('iopl', 3), ('personality', 0x0400000))
for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sysrq-trigger',
             '/sys/fs/cgroup/x', '/sys/fs/cgroup/release_agent', '/sys/fs/cgroup/cgroup.procs',
             '/sys/fs/cgroup/memory/memory.limit_in_bytes', '/sys/fs/cgroup/memory.max', '/sys/kernel/x'):
    probe(path, write, path, '1')

# Users and devices.
calls(('setuid', 0), ('setgid', 0), ('setresuid', 0, 0, 0))
probe('setgroups', os.setgroups, [0])
for name, kind, device in (('disk', stat.S_IFBLK, (8, 0)), ('memory', stat.S_IFCHR, (1, 1)), ('whiteout', stat.S_IFCHR, (0, 0))):
    probe(f'mknod {name}', os.mknod, name, kind | 0o666, os.makedev(*device))
for path in ('/dev/mem', '/dev/kmsg', '/dev/sda', '/dev/vda', '/dev/fuse', '/dev/kvm', '/dev/vsock', '/dev/net/tun'):
    probe(path, read, path)

# Sockets. None is connected but to an address of documentation, and to itself.
OTHERS = [family for family in range(64) if family not in (1, 2, 10, 16)]


def connect(family, address):
    socket.socket(family, socket.SOCK_STREAM).connect(address)

def loopback(family, host):
    server = socket.create_server((host, 0), family=family)
    socket.create_connection(server.getsockname()[:2]).sendall(b'x')
    assert server.accept()[0].recv(1) == b'x'


probe('AF_VSOCK', call, 'socket', 40, 1, 0)
probe('AF_ALG', call, 'socket', 38, 5, 0)
probe('AF_PACKET', call, 'socket', 17, 3, 0)
probe('AF_VSOCK with high bits', call, 'socket', 1 << 32 | 40, 1, 0)
for family in OTHERS:
    for kind in (1, 2, 3, 5):
        probe(f'socket {family} {kind}', call, 'socket', family, kind, 0)
    probe(f'socketpair {family}', call, 'socketpair', family, 1, 0, buffer)
probe('AF_INET raw', call, 'socket', 2, 3, 1)
probe('AF_INET out', connect, socket.AF_INET, ('192.0.2.1', 80))
probe('AF_INET6 out', connect, socket.AF_INET6, ('2001:db8::1', 80))
probe('loopback', loopback, socket.AF_INET, '127.0.0.1')
probe('AF_UNIX', lambda: [one.close() for one in socket.socketpair()])
probe('AF_NETLINK', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close())

# The calls of 32-bit programs, which have numbers of their own.
def compatible():
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    place = libc.mmap(None, 4096, 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, -1, 0)
    # push rbx; mov eax, edi; mov ebx, esi; xchg ecx, edx; int 0x80; pop rbx; ret
    code = bytes.fromhex('5389f889f387d1cd805bc3')
    ctypes.memmove(place, code, len(code))
    run = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint] * 4)(place)
    def made(number, *args):
        got = run(number, *args, *[0] * (3 - len(args)))
        if got < 0:
            raise OSError(-got, 'int 0x80')
    return place + 2048, made

def socketcall(which, family):
    place, made = compatible()
    ctypes.memmove(place, struct.pack('IIII', family, 1, 0, place + 64), 16)
    made(102, which, place)

if X86:
    for family in (1, 2, 40):
        probe(f'32-bit socketcall socket {family}', socketcall, 1, family)
    probe('32-bit socketcall socketpair', socketcall, 8, 1)
    probe('32-bit socket 40', lambda: compatible()[1](359, 40, 1, 0))
    probe('x32 socket 40', lambda: libc.syscall(0x40000000 | 41, 40, 1, 0) >= 0 or call('socket', 40, 1, 0))

# Files.
os.makedirs('d/sub', exist_ok=True)
write('d/f', 'x')
probe('link /etc/passwd', os.link, '/etc/passwd', 'passwd')
probe('user.overlay.opaque', os.setxattr, 'd', 'user.overlay.opaque', b'y')
probe('trusted.overlay.opaque', os.setxattr, 'd', 'trusted.overlay.opaque', b'y')
probe('security.capability', os.setxattr, 'd/f', 'security.capability', struct.pack('<IIIII', 0x2000001, 1 << 7, 0, 0, 0))
probe('.wh..wh..opq', write, 'd/.wh..wh..opq', '')
probe('.wh.f', write, 'd/.wh.f', '')

for name, attack in probes.items():
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            attack()
            print(name, 'done', sep='\t')
        except OSError as error:
            print(name, 'held' if error.errno in HELD else errno.errorcode[error.errno], sep='\t')
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        # A kernel without 32-bit programs ends what tries to be one.
        print(name, 'held' if name.startswith('32-bit') and os.WIFSIGNALED(status) else f'status {status}', sep='\t')
