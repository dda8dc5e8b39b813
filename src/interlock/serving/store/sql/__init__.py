"""Stores in SQL: in memory and in a file of SQLite. They need the package `apsw`.

sql_store   what the stores share
sqlite      the stores in memory and in a file
rows        the statements, which carry out the effects of the tables
database    connections, threads and transactions
sql_schema  the tables and their versions
"""
