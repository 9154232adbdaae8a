"""Operations on a cluster: ledgers, cookies, bookie ids, tests of bookies."""
