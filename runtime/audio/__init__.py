"""Sound on its way to a net: reading WAV files, and the integers of ``fb_audio`` (docs/audio.md)."""
