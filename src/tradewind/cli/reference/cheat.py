"""`tradewind cheat`: examples to copy, by topic.

Owns the examples. A test checks that each command and flag in them exists.
"""

from __future__ import annotations

from typing import Annotated, Final

from tradewind.cli.frame.failures import CommandError, near
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import line, print_json

app = CommandApp("Cheat sheets")

CHEATS: Final = {
    "bench": """\
# publish a million messages, 128 bytes each, from two clients
tradewind bench pub load --msgs 1000000 --size 128 --clients 2
# receive them (start this first, in another shell)
tradewind bench sub load --msgs 1000000
# write into a stream and read it again
tradewind bench js pub async bench.data --create --msgs 100000 --batch 500
tradewind bench js fetch --msgs 100000 --batch 100
tradewind bench js consume --msgs 100000 --acks none
# put and get values
tradewind bench kv put --msgs 10000
tradewind bench kv get --msgs 10000 --randomize 1000
""",
    "consumer": """\
# a consumer that programs pull from
tradewind consumer add ORDERS packer --pull --ack explicit --deliver all --defaults
# read one message and acknowledge it
tradewind consumer next ORDERS packer
# show its position
tradewind consumer info ORDERS packer
tradewind consumer report ORDERS
# pause deliveries for an hour, or resume them earlier
tradewind consumer pause ORDERS packer 1h --force
tradewind consumer resume ORDERS packer --force
""",
    "contexts": """\
# a named set of options, used by default from now on
tradewind context add work --server nats://work:4222 --creds work.creds --select
# use another one for a single command
tradewind stream ls --context home
# list them, switch, switch back
tradewind context ls
tradewind context select home
tradewind context previous
# check the files and connections of all contexts
tradewind context validate --connect
""",
    "events": """\
# events of JetStream and, with the system account, of servers
tradewind events
tradewind events --all --short
# only events about one stream
tradewind events --js-advisory --filter ORDERS --json
""",
    "kv": """\
# a bucket that keeps five values of each key for a day
tradewind kv add CONFIG --history 5 --ttl 1d
tradewind kv put CONFIG auth.user bob
tradewind kv get CONFIG auth.user --raw
# only if nobody else changed it first
tradewind kv create CONFIG auth.lock me
tradewind kv update CONFIG auth.user alice 1
# show earlier values, and restore one
tradewind kv history CONFIG auth.user
tradewind kv revert CONFIG auth.user 1 --force
# follow changes
tradewind kv watch CONFIG 'auth.>'
# delete a key, the markers of deleted keys, the bucket
tradewind kv del CONFIG auth.user --force
tradewind kv compact CONFIG --force
tradewind kv del CONFIG --force
""",
    "latency": """\
# round trips to all servers
tradewind rtt 10
# message latency through one server, or from one to another
tradewind latency --rate 10000 --duration 10s
tradewind latency --server nats://a:4222 --server-b nats://b:4222
""",
    "object": """\
# a store for files
tradewind object add FILES --description 'Reports and films'
tradewind object put FILES report.pdf --description 'The yearly report'
tar c photos | tradewind object put FILES --name photos.tar
tradewind object ls FILES
tradewind object get FILES report.pdf --output copy.pdf
tradewind object del FILES report.pdf --force
# never allow changes again
tradewind object seal FILES --force
""",
    "pub": """\
# one message, with a header
tradewind pub orders.new 'two apples' -H Trace:7
# a hundred, each different
tradewind pub orders.new 'order {{Count}} of {{TimeStamp}}' --count 100 --sleep 10ms
tradewind pub orders.new '{{Random 10 100}}' --count 5
# the input as one message, or each of its lines
cat order.json | tradewind pub orders.new
tail -f app.log | tradewind pub logs.app --send-on newline
# wait until a stream has stored it
tradewind pub orders.new 'two apples' --jetstream
""",
    "reply": """\
# reply with a text, an echo, or the output of a command
tradewind reply time 'it is {{Time}}'
tradewind reply echo --echo
tradewind reply 'weather.>' --command 'curl -s wttr.in/{{1}}?format=3'
# ask
tradewind request weather.london ''
# ask all responders
tradewind request services.ping '' --replies 0
""",
    "server": """\
# start one here, with JetStream and two contexts
tradewind server run
# list the servers and their state (needs the system account)
tradewind server ls --context nats_development_system
tradewind server info --context nats_development_system
tradewind server report connections --sort in-msgs --context nats_development_system
tradewind top --context nats_development_system
# for monitoring systems
tradewind server check connection
tradewind server check stream --stream ORDERS --msgs-critical 1
tradewind server check consumer --stream ORDERS --consumer packer --unprocessed-critical 1000
tradewind server check jetstream --format prometheus
""",
    "stream": """\
# a stream of all orders that keeps them for a year
tradewind stream add ORDERS --subjects 'orders.>' --max-age 1y --defaults
tradewind stream ls
tradewind stream info ORDERS
# look at its messages
tradewind stream view ORDERS 10
tradewind stream get ORDERS 42
tradewind stream subjects ORDERS
# change it, empty it, remove it
tradewind stream edit ORDERS --max-msgs 1000000 --force
tradewind stream purge ORDERS --subject orders.old --force
tradewind stream rm ORDERS --force
# back it up and restore it
tradewind stream backup ORDERS backups/orders
tradewind stream restore backups/orders
""",
    "sub": """\
# messages of a subject as they arrive
tradewind sub 'orders.>'
# share them with other members of a group
tradewind sub jobs --queue workers
# from a stream: all, the last ones, since yesterday
tradewind sub --stream ORDERS --all
tradewind sub 'orders.>' --last-per-subject
tradewind sub 'orders.>' --since 1d
# continue where it stopped last time
tradewind sub --stream ORDERS --durable mine
# requests with their replies
tradewind sub 'services.>' --match-replies
# which subjects are busy
tradewind sub '>' --report-subjects
""",
    "trace": """\
# show who would receive a message, without delivering it
tradewind trace orders.new
# deliver it as well, and see when each step happened
tradewind trace orders.new 'two apples' --deliver --timestamp
""",
}


@app.command()
def cheat(
    section: Annotated[str, Argument(help="Topic; shows all if omitted")] = "",
    sections: Annotated[bool, Option("--sections", help="List the topics")] = False,
    json: JsonFlag = False,
) -> None:
    """Show examples to copy."""
    if section and section not in CHEATS:
        raise CommandError(
            f"topic {section!r} does not exist{near(section, CHEATS)}",
            "see: tradewind cheat --sections",
        )
    shown = {section: CHEATS[section]} if section else CHEATS
    if json:
        print_json(list(CHEATS) if sections else shown)
        return
    if sections:
        for name in CHEATS:
            line(name)
        return
    for name, text in shown.items():
        if not section:
            line(f"--- {name}\n")
        line(text)
