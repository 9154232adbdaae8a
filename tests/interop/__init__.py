"""Real Java peers: the server, the client and ZooKeeper of BookKeeper 4.18.0.

Seen on two cores: fetching the jars, once for a user, 100 s; ZooKeeper up in 0.7 s; a JVM for the
Java client in 0.2 s and its first client in 1 s; three Java bookies started side by side registered
in 3 s; a command of the Java shell 1.5 to 2 s; a bookie started again after SIGKILL 5 s (its old
session has to end first). The harness's own tests take 40 s with the jars fetched.

Raw V2 frames against a Java bookie are the business of tests/bench; ``JavaBookie.shipped`` is the
bookie to measure there, and ``java_load`` the Java client.
"""
