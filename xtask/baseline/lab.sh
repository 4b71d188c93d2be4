#!/bin/bash
# The lab's baseline: machines out of namespaces by the shortest script that does it. Only the
# benchmark runs it; guywire must not be much slower than this.
#   lab.sh boot NAME ADDR    boots a machine
#   lab.sh cut NAME          power cut: off the network first, then every process at once
#   lab.sh rm NAME           cut, and forget its disk
#   lab.sh sweep             rm of every machine, and the bridge
# GW is the directory for everything, BASE the root that machines start from; $GW/key.pub is let in as root.
set -eu
GW=${GW:?a directory}; BASE=${BASE:?a root}; BR=gwbase0; NET=10.251.7
V1="cpu cpuacct cpuset memory devices freezer blkio pids"        # v1 controllers, mounted one by one on this kind of host

boot() { # NAME ADDR
  n=$1 ip=$2 d=$GW/m/$1
  ip link show $BR >/dev/null 2>&1 || { ip link add $BR type bridge; ip addr add $NET.1/24 dev $BR; ip link set $BR up; }
  if [ ! -d "$d/up" ]; then                                        # first boot: identity is made once and stays
    mkdir -p "$d"/{up/etc/ssh,up/root/.ssh,work,root,data}; chmod 755 "$d"/up "$d"/up/etc "$d"/up/etc/ssh
    echo "$n" > "$d/up/etc/hostname"; printf '127.0.0.1 localhost\n::1 localhost\n%s %s\n' "$ip" "$n" > "$d/up/etc/hosts"
    tr -d - < /proc/sys/kernel/random/uuid > "$d/up/etc/machine-id"
    ssh-keygen -q -t ed25519 -N '' -f "$d/up/etc/ssh/ssh_host_ed25519_key"
    chmod 700 "$d/up/root" "$d/up/root/.ssh"; cp "$GW/key.pub" "$d/up/root/.ssh/authorized_keys"
  fi
  ip netns add "$n"; ip link add "v-$n" type veth peer name eth0 netns "$n"; ip link set "v-$n" master $BR up
  ip -n "$n" addr add "$ip/24" dev eth0; ip -n "$n" link set eth0 up; ip -n "$n" link set lo up; ip -n "$n" route add default via $NET.1
  cat > "$d/init" <<'I'
#!/bin/bash
set -e
n=$1 d=$2 base=$3; shift 3; R=$d/root
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$base,upperdir=$d/up,workdir=$d/work" "$R"
for p in var/lib/containerd var/lib/kubelet var/lib/etcd; do mkdir -p "$d/data/$p" "$R/$p"; mount --bind "$d/data/$p" "$R/$p"; done   # overlay on overlay is refused
mount -t proc proc "$R/proc"; t=$R/proc/sysrq-trigger; [ ! -e "$t" ] || { mount --bind "$t" "$t"; mount -o remount,bind,ro "$t"; }
mount -t sysfs sysfs "$R/sys"
mount -t tmpfs -o mode=755 tmpfs "$R/dev"
for f in null zero full random urandom tty kmsg; do touch "$R/dev/$f"; mount --bind /dev/$f "$R/dev/$f"; done                       # kubelet reads kmsg
mkdir "$R/dev/pts" "$R/dev/shm"; mount -t devpts -o newinstance,ptmxmode=0666 devpts "$R/dev/pts"; mount -t tmpfs tmpfs "$R/dev/shm"
ln -s pts/ptmx "$R/dev/ptmx"; ln -s /proc/self/fd "$R/dev/fd"; for s in in out err; do ln -s "/proc/self/fd/$([ $s = in ] && echo 0 || { [ $s = out ] && echo 1 || echo 2; })" "$R/dev/std$s"; done
mount -t tmpfs -o mode=755 tmpfs "$R/run"; mount -t tmpfs tmpfs "$R/tmp"
mount -t tmpfs -o mode=755 tmpfs "$R/sys/fs/cgroup"
for c in "$@"; do mkdir "$R/sys/fs/cgroup/$c"; mount -t cgroup -o "$c" cgroup "$R/sys/fs/cgroup/$c"; done
mkdir "$R/sys/fs/cgroup/systemd" "$R/sys/fs/cgroup/unified"
mount -t cgroup -o none,name=systemd cgroup "$R/sys/fs/cgroup/systemd"; mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup/unified"
hostname "$n"; cd "$R"; mkdir -p oldroot; pivot_root . oldroot; umount -l /oldroot; mount --make-rshared /
export container=guywire; exec /lib/systemd/systemd --log-target=console
I
  chmod +x "$d/init"
  ( for c in $V1 systemd unified; do g=/sys/fs/cgroup/$c/gwbase-$n; mkdir -p "$g"
      [ $c = cpuset ] && for f in cpus mems; do cat /sys/fs/cgroup/cpuset/cpuset.$f > "$g/cpuset.$f"; done
      echo $BASHPID > "$g/cgroup.procs"; done                    # into its own cgroups first, then the cgroup namespace
    exec setsid ip netns exec "$n" unshare --mount --pid --uts --ipc --cgroup --fork --kill-child "$d/init" "$n" "$d" "$BASE" $V1 </dev/null >"$d/log" 2>&1 ) &
  echo $! > "$d/pid"
}

cut() {
  ip link set "v-$1" down 2>/dev/null || true                    # a namespace that outlives its processes would still answer ARP and TCP resets
  p=$(cat "$GW/m/$1/pid" 2>/dev/null || true)
  ! tr '\0' ' ' 2>/dev/null < "/proc/${p:-none}/cmdline" | grep -qF "$GW/m/$1/init" || kill -9 "$p"   # a number may have a new owner
  ip link del "v-$1" 2>/dev/null || true; ip netns del "$1" 2>/dev/null || true   # the namespace takes its veth along, but later
  for i in $(seq 50); do left=                                   # its last processes take a moment to go
    for c in $V1 systemd unified; do g=/sys/fs/cgroup/$c/gwbase-$1; [ ! -d "$g" ] || { find "$g" -depth -type d -exec rmdir {} \; 2>/dev/null || true; [ ! -d "$g" ] || left=1; }; done
    [ -n "$left" ] || break; sleep 0.1; done
}
rm_() { cut "$1"; rm -rf "${GW:?}/m/$1"; }

sweep() {
  for d in "$GW"/m/*/; do [ ! -d "$d" ] || rm_ "$(basename "$d")"; done
  ip link del $BR 2>/dev/null || true
}

case $1 in boot) boot "$2" "$3";; cut) cut "$2";; rm) rm_ "$2";; sweep) sweep;; *) sed -n 2,9p "$0"; exit 2;; esac
