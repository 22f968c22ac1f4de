"""A VIDEO that is a file."""


class VideoFromFile:
    def __init__(self, file: str) -> None:
        self.file = file

    def get_stream_source(self) -> str:
        return self.file


class InputImpl:
    VideoFromFile = VideoFromFile
