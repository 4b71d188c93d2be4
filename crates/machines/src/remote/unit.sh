#!/bin/sh
# Runs a command as a systemd unit: once per key and attempt, for the newest caller only. The unit
# outlives whoever asked for it; its output and exit code stay here, under the key's ID.
#
#   start ID FENCE ATTEMPT LIMIT SECONDS SIZE OFFSET KEY   starts the script on stdin (SIZE bytes), or
#                                                          re-attaches to that attempt; then follows
#   follow ID ATTEMPT OFFSET    the output from OFFSET on, until the end or for a while
#   status ID                   the fence, the last attempt and what became of it
#   stop ID FENCE ATTEMPT       stops what runs, and that attempt if it is still on its way
#   fence ID FENCE              refuses older fences from now on
#   forget ID FENCE             removes all traces
#
# Standard output is the unit's own; what we have to say is on standard error behind "guywire-unit:".
set -u
umask 077
state=/var/lib/guywire/units
run=/run/guywire
window=20

say() { echo "guywire-unit: $*" >&2; }
cannot() { say "cannot $*"; exit 81; }

# Old or new after a power cut, never a half.
store() {
    printf '%s\n' "$2" > "$1.new" && sync "$1.new" && mv -f "$1.new" "$1" && sync "${1%/*}"
}

# A name for the time since the last boot. The kernel's own boot id is no help: machines that share a
# kernel share it. /run is empty after every boot.
name_boot() {
    mkdir -p "$run" || cannot "make $run"
    if [ ! -s "$run/boot-id" ]; then
        new=$(mktemp "$run/boot-id.XXXXXX") || cannot "write to $run"
        cat /proc/sys/kernel/random/uuid > "$new"
        ln "$new" "$run/boot-id" 2> /dev/null # whoever is first names it
        rm -f "$new"
    fi
    read -r boot < "$run/boot-id" || cannot "read $run/boot-id"
}

# The lock is in /run, so that removing the key's directory does not remove it under a waiter.
take_lock() {
    mkdir -p "$dir" || cannot "make $dir"
    exec 8> "$run/$id.lock" || cannot "write to $run"
    flock -w 60 8 || cannot "get the lock of $id"
}

admit() { # FENCE
    seen=0
    if [ -s "$dir/fence" ]; then read -r seen < "$dir/fence"; fi
    if [ "$1" -lt "$seen" ]; then say "fenced $seen"; exit 75; fi
    [ "$1" -eq "$seen" ] || store "$dir/fence" "$1" || cannot "write $dir/fence"
}

last_attempt() {
    last=0
    for attempt_dir in "$dir"/[0-9]*; do
        n=${attempt_dir##*/}
        if [ -e "$attempt_dir/started" ] && [ "$n" -gt "$last" ]; then last=$n; fi
    done
}

# Sets found to ended, running or lost, and pid. The lock is held, or the attempt is known to have begun.
look_at() { # ATTEMPT
    pid=0 found=ended
    [ ! -s "$dir/$1/exit" ] || return 0
    of=
    read -r of < "$dir/$1/boot-id"
    if [ "$of" != "$boot" ]; then found=lost; return 0; fi
    found=lost
    for line in $(systemctl show -p ActiveState -p MainPID "$unit"); do
        case $line in
            ActiveState=active | ActiveState=activating | ActiveState=deactivating) found=running ;;
            MainPID=*) pid=${line#*=} ;;
        esac
    done
    # It may have ended between our two looks.
    [ ! -s "$dir/$1/exit" ] || found=ended
}

begin() { # ATTEMPT FENCE
    mkdir -p "$dir/$1" && : >> "$dir/$1/output" && printf '%s\n' "$boot" > "$dir/$1/boot-id" &&
        sync "$dir/$1/boot-id" && store "$dir/$1/started" "$2 $(date +%s)" && sync "$dir" ||
        cannot "write to $dir/$1"
}

finish() { # ATTEMPT CODE WHY
    store "$dir/$1/exit" "$2 $3 $(date +%s)"
}

follow() { # ATTEMPT OFFSET; the lock is held and is let go
    look_at "$1"
    exec 8>&-
    from=$(($2 + 1)) out=$dir/$1/output
    if [ "$found" = running ] && [ "$pid" -gt 0 ]; then
        timeout "$window" tail -c "+$from" -f -s 0.05 --pid="$pid" "$out" 2> /dev/null
        # A unit that was killed takes a moment to be gone for systemd too.
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            look_at "$1"
            if [ "$found" != running ] || [ "$pid" -gt 0 ]; then break; fi
            sleep 0.1
        done
    elif [ "$found" != running ]; then
        tail -c "+$from" "$out"
    else
        sleep 0.1
    fi
    case $found in
        running) exit 77 ;;
        lost) say lost; exit 76 ;;
    esac
    began=0 code='' why='' ended=0
    read -r _ began < "$dir/$1/started"
    read -r code why ended < "$dir/$1/exit"
    say "exit $code $why $(stat -c %s "$out") $((ended - began))"
    exit 0
}

start() { # FENCE ATTEMPT LIMIT SECONDS SIZE OFFSET KEY
    # All of the script before anything else: half of one must never run. Its first line closes the
    # descriptor that it is read from.
    script=$run/$id.$2.$$.script
    { echo 'exec 7<&-'; cat; } > "$script" || cannot "write to $run"
    if [ "$(stat -c %s "$script")" -ne $(($5 + 10)) ]; then rm -f "$script"; cannot "read the whole script"; fi
    take_lock
    trap 'rm -f "$script"' EXIT
    admit "$1"
    if [ -e "$dir/$2/started" ]; then
        rm -f "$script"
        trap - EXIT
        say reattached
        follow "$2" "$6"
    fi
    last_attempt
    if [ "$last" -gt 0 ]; then
        look_at "$last"
        if [ "$last" -gt "$2" ] || [ "$found" = running ]; then say "busy $last"; exit 78; fi
    fi
    [ -s "$dir/key" ] || store "$dir/key" "$7" || cannot "write $dir/key"
    begin "$2" "$1"
    mv -f "$script" "$run/$id.$2.script" || cannot "write to $run"
    if ! why=$(systemd-run --quiet --collect --no-ask-password --unit "$unit" --description "guywire $7" \
        -p Type=exec -p TimeoutStopSec=10 -p RuntimeMaxSec="$4" -p OOMPolicy=continue \
        /bin/sh "$0" run "$id" "$2" "$3" 2>&1); then
        # It certainly does not run: the attempt never was.
        rm -rf "$run/$id.$2.script" "${dir:?}/$2"
        cannot "start a unit: $why"
    fi
    trap - EXIT
    say started
    follow "$2" "$6"
}

# Inside the unit.
run_script() { # ATTEMPT LIMIT
    export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    base=$run/$id.$1 out=$dir/$1/output stopped=
    last_bytes=$(($2 / 4)) first_bytes=$(($2 - $2 / 4))
    exec 7< "$base.script"
    rm -f "$base.script" "$base.pipe"
    mkfifo "$base.pipe"
    # The beginning at once, the end when it is known. A stop must not cut off what was said before it.
    (
        trap '' TERM
        exec 7<&-
        stdbuf -o0 head -c "$first_bytes" >> "$out"
        exec tail -c "$last_bytes" > "$base.tail"
    ) < "$base.pipe" &
    filter=$!
    trap 'stopped=1' TERM
    umask 022
    setsid /bin/sh /proc/self/fd/7 > "$base.pipe" 2>&1 < /dev/null &
    child=$!
    umask 077
    exec 7<&-
    # A signal ends `wait` too; only a child that is gone has ended.
    while :; do
        wait "$child"
        code=$?
        kill -0 "$child" 2> /dev/null || break
    done
    # What the script left in the background would hold the pipe open: a unit ends as a whole.
    kill -KILL "-$child" 2> /dev/null
    (sleep 3; kill -KILL "$filter") 2> /dev/null &
    guard=$!
    wait "$filter"
    kill "$guard" 2> /dev/null
    if [ -s "$base.tail" ]; then
        if [ "$(stat -c %s "$base.tail")" -ge "$last_bytes" ]; then
            printf '\n[guywire: output cut here: the first %s and the last %s bytes are kept]\n' "$first_bytes" "$last_bytes" >> "$out"
        fi
        cat "$base.tail" >> "$out"
    fi
    rm -f "$base.tail" "$base.pipe"
    sync "$out"
    if [ -n "$stopped" ]; then why=stopped; else why='done'; fi
    finish "$1" "$code" "$why"
}

verb=$1 id=$2
shift 2
dir=$state/$id unit=guywire-unit-$id.service
name_boot
case $verb in
    start) start "$@" ;;
    run) run_script "$@" ;;
    follow)
        take_lock
        [ -e "$dir/$1/started" ] || { say unknown; exit 79; }
        follow "$1" "$2"
        ;;
    status)
        take_lock
        seen=0
        if [ -s "$dir/fence" ]; then read -r seen < "$dir/fence"; fi
        last_attempt
        found=none code=
        if [ "$last" -gt 0 ]; then look_at "$last"; fi
        if [ "$found" = ended ]; then read -r code _ < "$dir/$last/exit"; fi
        say "status $seen $last $found $code"
        ;;
    stop)
        take_lock
        admit "$1"
        systemctl stop "$unit" 2> /dev/null
        if systemctl is-active --quiet "$unit"; then cannot "stop $unit"; fi
        # A start that is still on its way must find that it is over.
        if [ ! -e "$dir/$2/started" ]; then begin "$2" "$1"; fi
        last_attempt
        for n in "$2" "$last"; do
            if [ ! -s "$dir/$n/exit" ]; then finish "$n" 137 stopped || cannot "write to $dir/$n"; fi
        done
        say stopped
        ;;
    fence) take_lock; admit "$1" ;;
    forget)
        take_lock
        admit "$1"
        if systemctl is-active --quiet "$unit"; then say "busy 0"; exit 78; fi
        rm -rf "${dir:?}"
        ;;
    *) cannot "do $verb" ;;
esac
