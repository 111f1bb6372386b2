/* What a machine may do to a program: another clock, a file system that nobody may write to; and which files it synced. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    const char *shift = getenv("MACHINE_SHIFT");
    if (!failed && shift && clock == CLOCK_REALTIME) time->tv_sec += atoll(shift);
    return failed;
}

int fsync(int file) {
    const char *log = getenv("MACHINE_SYNCED");
    if (log) {
        char link[32] = "/proc/self/fd/", path[4096];
        char digits[12], *at = digits + sizeof digits;
        *--at = 0;
        for (int rest = file; rest || !*at; rest /= 10) *--at = '0' + rest % 10;
        strcat(link, at);
        ssize_t length = readlink(link, path, sizeof path - 1);
        int out = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT, 0600);
        if (length > 0 && out >= 0) {
            path[length++] = '\n';
            if (write(out, path, length) < 0) abort();
        }
        close(out);
    }
    return syscall(SYS_fsync, file);
}

static int refused(const char *path) {
    const char *below = getenv("MACHINE_READ_ONLY");
    if (!below || strncmp(path, below, strlen(below))) return 0;
    errno = EROFS;
    return 1;
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && refused(path)) return -1;
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    if (refused(path)) return -1;
    return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to) {
    if (refused(from)) return -1;
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path) {
    if (refused(path)) return -1;
    return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
