"""Stores in SQL: SQLite in memory, SQLite in a file, and Postgres. SQLite needs the package `apsw`, Postgres `psycopg`.

sql_store   what the three stores share
sqlite      the stores in memory and in a file
postgres    the store in Postgres
rows        the statements, which carry out the effects of the tables
database    connections, threads and transactions
sql_schema  the tables and their versions
"""
