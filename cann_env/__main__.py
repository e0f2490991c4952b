"""``python -m cann_env`` is the ``cann-env`` command."""

from cann_env.cli import main

if __name__ == "__main__":
    main()
