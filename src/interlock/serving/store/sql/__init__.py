"""Stores in SQLite (in memory or in a file) and Postgres. SQLite needs the package `apsw`, Postgres needs `psycopg`."""
