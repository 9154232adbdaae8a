"""The lines that the benches print become rows with the right ratios."""

from __future__ import annotations

from tests.bench.all.suites import SUITES
from tests.bench.all.table import Rows, add_round, table

PRINTED = {
    "adds": """\
idle RSS: java 191 MB, ours 42 MB
  1024 B  c1   w1000  v2
  java           10,000/s   1.00x  p50   10.00  p99   90.00  p99.9  100.00 ms    9.20 us/add
  ours           25,000/s   2.50x  p50    4.00  p99   30.00  p99.9   40.00 ms    2.40 us/add
  ours / java: adds 2.50 (2.50 to 2.50), p99 0.33 (0.33 to 0.33), CPU 0.26 (0.26 to 0.26)
""",
    "tls": """\
  1024 B  c1   w1000  v3 TLS
  java           10,000/s   1.00x  p50   10.00  p99   90.00  p99.9  100.00 ms    9.20 us/add
  ours           50,000/s   5.00x  p50    4.00  p99   30.00  p99.9   40.00 ms    2.40 us/add
""",
    "large": """\
 65536 B  c1   w16    v2
  java            1,000/s   1.00x  p50   10.00  p99   90.00  p99.9  100.00 ms    9.20 us/add
  ours            1,500/s   1.50x  p50    4.00  p99   45.00  p99.9   40.00 ms    2.40 us/add
""",
    "connections": """\
    1024 B  c200 w1000  v3
  java           20,000/s   1.00x  p50   10.00  p99   90.00  p99.9  100.00 ms    9.20 us/add
  ours           15,000/s   0.75x  p50    4.00  p99   90.00  p99.9   40.00 ms    2.40 us/add
""",
    "beside": """\
16 ledgers, 1024 B
java alone: 10,000 adds/s, p50 9.00 p99 40.00 ms, 20.1 us of CPU each
ours alone: 20,000 adds/s, p50 4.00 p99 20.00 ms, 7.3 us of CPU each
java beside readers: 5,000 adds/s, p50 19.00 p99 90.00 ms, 40.1 us of CPU each; 100,000 reads/s \
catching up, 2,000 reads/s tailing
ours beside readers: 15,000 adds/s, p50 6.00 p99 30.00 ms, 9.3 us of CPU each; 150,000 reads/s \
catching up, 2,000 reads/s tailing
""",
    "pulsar": """\
1000 ledgers, 100 B, DbLedgerStorage
java alone: 30,000 adds/s, p50 9.00 p99 40.00 ms, 20.1 us of CPU each
ours alone: 60,000 adds/s, p50 4.00 p99 20.00 ms, 7.3 us of CPU each
""",
    "pulsar-many": """\
10000 ledgers, 100 B, DbLedgerStorage
java alone: 10,000 adds/s, p50 9.00 p99 40.00 ms, 20.1 us of CPU each
ours alone: 40,000 adds/s, p50 4.00 p99 20.00 ms, 7.3 us of CPU each
""",
    "disks": """\
16 ledgers, 1024 B, 2 journals, 4 directories
java alone: 10,000 adds/s, p50 9.00 p99 40.00 ms, 20.1 us of CPU each
ours alone: 50,000 adds/s, p50 4.00 p99 8.00 ms, 7.3 us of CPU each
""",
    "cluster": """\
1024 B, window 400, 20000 adds, 3 rounds
  java client v2  on java bookies    35,300 adds/s  1.00x  p50   8.90 p99  82.00 ms   15.5 us/add\
     45,300 reads/s    8.5 us/read
  java client v2  on bookied         40,000 adds/s  1.13x  p50   8.30 p99  40.00 ms   16.5 us/add\
     50,000 reads/s    5.5 us/read
  our client v2   on bookied         32,000 adds/s  1.42x  p50  12.40 p99  55.00 ms    5.7 us/add\
     62,500 reads/s    5.0 us/read
""",
    "reads": """\
scattered  cold: java      26,935/s    67.0 us of CPU each  1.00x (1.00 to 1.00)
scattered  cold: ours       6,928/s   138.0 us of CPU each  0.26x (0.26 to 0.26)
""",
    "ranges": """\
bookied      java v2, batches   327,200 reads/s  1.00x (1.00 to 1.00)  CPU us/read: client   2.6
bookied      ours v2, batches   654,400 reads/s  2.00x (2.00 to 2.00)  CPU us/read: client   2.3
""",
    "restart": """\
java: 6.9 s to replay and serve, 1.00 of Java's
ours: 2.3 s to replay and serve, 0.33 of Java's
""",
    "audit": """\
zookeeper, java: 100,000 ledgers made in 60 s
zookeeper, java, no bookie lost: 15.0 s, CPU 10.5 s from the start on, 0 marked, at most 271 MB
zookeeper, ours, no bookie lost: 30.0 s, CPU 13.7 s, 0 marked, 40 MB before, at most 48 MB
""",
    "repair": """\
java, batches of 100: 1,946 MB, 617,244 entries in 215.5 s: 9.0 MB/s, 2,865 entries/s; CPU 32.5 s
ours, batches of 100: 1,946 MB, 617,244 entries in 53.0 s: 36.0 MB/s, 11,000 entries/s; CPU 50.0 s
""",
    "commands": """\
                        ours      CPU       Java      CPU   ratio  of CPU   aim
ledger list, ids      186 ms   181 ms    1860 ms  2185 ms    0.10    0.08   0.35 met
first prompt          200 ms              800 ms  1426 ms    0.25           400 ms met
Tab: a command         54 ms    54 ms                                       200 ms met
""",
}


def test_every_bench_is_read() -> None:
    rows: Rows = {}
    for suite in SUITES:
        found = list(suite.figures(PRINTED[suite.name]))
        assert {one.kind for one in found} == {"java", "ours"}, suite.name
        add_round(rows, found)
    assert rows["the same, p99 (1024 B, window 1000, v2)"].ours == [30.0]
    ratios = {name: [round(one, 2) for one in row.ratios] for name, row in rows.items()}
    assert ratios == {
        "one bookie, adds of 1024 B, window 1000, v2": [2.5],
        "the same, p99 (1024 B, window 1000, v2)": [3.0],
        "one bookie, adds of 1024 B, window 1000, v3 TLS": [5.0],
        "the same, p99 (1024 B, window 1000, v3 TLS)": [3.0],
        "one bookie, adds of 65536 B, window 16, v2": [1.5],
        "the same, p99 (65536 B, window 16, v2)": [2.0],
        "one bookie, adds of 1024 B, 200 connections, window 1000, v3": [0.75],
        "the same, p99 (1024 B, 200 connections, window 1000, v3)": [1.0],
        "16 ledgers, adds of 1024 B alone": [2.0],
        "the same, p99 alone (16 ledgers)": [2.0],
        "16 ledgers, adds of 1024 B beside readers": [3.0],
        "the same, p99 beside readers (16 ledgers)": [3.0],
        "the same, the reader that catches up (16 ledgers)": [1.5],
        "1000 ledgers, DbLedgerStorage, adds of 100 B alone": [2.0],
        "the same, p99 alone (1000 ledgers, DbLedgerStorage)": [2.0],
        "10000 ledgers, DbLedgerStorage, adds of 100 B alone": [4.0],
        "the same, p99 alone (10000 ledgers, DbLedgerStorage)": [2.0],
        "16 ledgers, 2 journals, 4 directories, adds of 1024 B alone": [5.0],
        "the same, p99 alone (16 ledgers, 2 journals, 4 directories)": [5.0],
        "the client, adds on bookied, v2": [0.8],
        "the client, reads on bookied, v2": [1.25],
        "one bookie, scattered reads, cold": [0.26],
        "complete ledgers on bookied, v2, batches": [2.0],
        "restart, to the first answer": [3.0],
        "an audit, no bookie lost": [0.5],
        "repair, batches of 100": [4.0],
        "bkctl, ledger list, ids": [10.0],
        "bkctl, first prompt": [4.0],
    }


def test_rows_that_java_leads_are_marked_and_rounds_give_least_and_most() -> None:
    rows: Rows = {}
    reads = next(suite for suite in SUITES if suite.name == "reads")
    for ours in (10, 20, 60):
        add_round(
            rows,
            reads.figures(
                f"sequential warm: java  40/s  1.0 us\nsequential warm: ours  {ours}/s  1.0 us\n"
            ),
        )
    *_, line = table(rows).splitlines()
    assert line == (
        "| one bookie, sequential reads, warm | 40.0 /s | 20.0 /s | 0.50 (0.25 to 1.50) |"
        " Java leads |"
    )
