"""As comfy/__init__.py says."""
