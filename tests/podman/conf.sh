# Settings that both engines of the tests have. No static_dir: with one, every container waits long for a lock.
# exit_command_delay: else what is left of each exec lives on for minutes. The limits must be below the machine's own,
# which may not be raised. An argument is one more line about containers.
containers_conf() {
    cat <<END
[containers]
netns = "none"
cgroupns = "private"
log_driver = "none"
no_hosts = true
${1:-}
default_sysctls = []
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[network]
network_config_dir = "$state/networks"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "file"
events_logfile_path = "$state/engine/events.log"
lock_type = "file"
exit_command_delay = 10
tmp_dir = "$state/engine"
volume_path = "$state/volumes"
image_default_transport = "containers-storage:"
END
}
