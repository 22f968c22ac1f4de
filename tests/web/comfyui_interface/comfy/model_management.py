"""Interrupting: the button sets a flag, which the next look at it clears and raises."""


class InterruptProcessingException(Exception):  # noqa: N818 - ComfyUI's name
    """Work was interrupted."""


wanted = False


def interrupt_current_processing(value: bool = True) -> None:
    global wanted  # noqa: PLW0603 - as there
    wanted = value


def throw_exception_if_processing_interrupted() -> None:
    global wanted  # noqa: PLW0603 - as there
    if wanted:
        wanted = False
        raise InterruptProcessingException
