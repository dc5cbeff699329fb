"""``python -m maint_assets.cli``: the same as ``maint-assets``."""

from maint_assets.cli.commands import main

if __name__ == "__main__":
    main()
