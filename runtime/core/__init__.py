"""The compiled C core: its library, nets that run, learners, the store in flash."""
