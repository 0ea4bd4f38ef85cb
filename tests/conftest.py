"""What all tests share."""

from hypothesis import settings

# machines are noisy: how long an example takes says nothing about the code
settings.register_profile("alchemy", deadline=None, derandomize=False)
settings.load_profile("alchemy")
