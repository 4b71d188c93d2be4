"""Decides what the hello VNF needs on its machines.

One JSON object comes on standard input, one goes to standard output: see docs/scripts.md. This script
touches no machine and cannot reach any; the steps that it prints do.
"""

import json
import sys

# At these points machines are new, or new again.
SET_UP = {"instantiate_end", "scale_end", "heal_end"}
# At these points machines that go are still there.
TAKE_DOWN = {"scale_start", "terminate_start"}

ANSWERS = """
answer=$(bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080 && head -n 1 <&3') &&
    [ "$answer" = "$(cat /etc/hello/answer)" ]
"""


def greeting(request):
    """The word that machines greet with."""
    word = (request.get("additionalParams") or {}).get("greeting", "hello")
    if not isinstance(word, str) or not word.isprintable() or not 1 <= len(word) <= 100:
        sys.exit("additionalParams.greeting: 1 to 100 printable characters are needed")
    return word


def delay(request):
    """Seconds that a machine settles before it serves: time to watch an operation, or to cancel it."""
    seconds = (request.get("additionalParams") or {}).get("delay", 0)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= 600:
        sys.exit("additionalParams.delay: a whole number of seconds from 0 to 600 is needed")
    return seconds


def set_up(machine, word, seconds):
    """A service on TCP port 8080 that answers every connection with one line."""
    name = machine["name"]

    def step(title, **what):
        return {"name": f"{title} on {name}", "machine": name, **what}

    settle = [step("settle", run={"script": f"sleep {seconds}", "timeout": seconds + 30})] if seconds else []
    return settle + [
        step("answer", put={"path": "/etc/hello/answer", "content": f"{word} from {name}\n"}),
        step("program", put={"path": "/usr/local/lib/hello/answer", "mode": "0755", "file": "Scripts/answer.sh"}),
        step("service", put={"path": "/etc/systemd/system/hello@.service", "file": "Scripts/hello@.service"}),
        step("socket", put={"path": "/etc/systemd/system/hello.socket", "file": "Scripts/hello.socket"}),
        step(
            "start",
            run={
                "script": "systemctl daemon-reload && systemctl enable --now hello.socket",
                "unless": "systemctl is-enabled --quiet hello.socket && systemctl is-active --quiet hello.socket",
                "undo": "systemctl disable --now hello.socket",
                "timeout": 30,
            },
        ),
        step("greeting heard", wait={"script": ANSWERS, "timeout": 30}),
    ]


def take_down(machine):
    """No new connections on a machine that goes. It may be dead already, so this is optional."""
    name = machine["name"]
    run = {"script": "systemctl disable --now hello.socket", "timeout": 20}
    return [{"name": f"stop on {name}", "machine": name, "optional": True, "run": run}]


def decide(asked):
    point, machines = asked["point"], asked["machines"]
    steps = []
    if point in SET_UP:
        word, seconds = greeting(asked["request"]), delay(asked["request"])
        for machine in machines:
            if machine["change"] in ("added", "replaced"):
                steps += set_up(machine, word, seconds)
    elif point in TAKE_DOWN:
        for machine in machines:
            if machine["change"] == "removed" and machine["addresses"]:
                steps += take_down(machine)
    return {"steps": steps}


asked = json.load(sys.stdin)
if asked["protocol"] != 1:
    sys.exit(f"protocol {asked['protocol']} is not known here; this script speaks 1")
json.dump(decide(asked), sys.stdout)
