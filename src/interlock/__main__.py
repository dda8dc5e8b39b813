"""`python -m interlock`, the same as the command `interlock`."""

from interlock.serving.cli.main import main

if __name__ == "__main__":
    main()
