"""Stores in SQLite (in memory or in a file) and Postgres. SQLite needs the package `apsw`, Postgres needs `psycopg`.

sql_store   the base of the three stores, and the threads that work for those in a file and in Postgres
sqlite      the stores in memory and in a file
postgres    the store in Postgres
rows        the statements that carry out the effects of the tables `stored` and `conversation`
database    the interface of a connection to a database, the tables and their versions
"""
