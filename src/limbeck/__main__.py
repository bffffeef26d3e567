"""`python -m limbeck`: the command line where the `limbeck` script is not on the path."""

from limbeck.cli import main

if __name__ == "__main__":
    main()
