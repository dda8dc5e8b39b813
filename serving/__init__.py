"""The only place with IO: the server, the engines that it asks, the tools that it runs, and the command."""
