"""Exact frames out of video files, the only place that knows PyAV. Refuses to know judges and models.

    open_clip -> Clip.info, Clip.frames

A file is opened in three steps, each of which may refuse it: is it a regular file and one of four
containers (`extent`, `reader`); how many frames are there, and all of them (packet headers only, nothing
decoded: `timeline`); does a first frame decode, and to which colours (`clip`, `picture`, `tonemap`). After
that `Clip.frames` decodes from the keyframe before a wanted frame up to that frame and no further, so the
cost is that of the frames shown, not of the clip's length.
"""

from vrt_lite.video.clip import Clip, ClipInfo, open_clip

__all__ = ["Clip", "ClipInfo", "open_clip"]
