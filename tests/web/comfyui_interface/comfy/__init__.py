"""The few names of ComfyUI that the pack imports, as ComfyUI 0.3.64 has them; test_comfyui_real.py runs its own."""
