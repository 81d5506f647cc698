"""What every other package stands on: errors, checks, files, text, resources, progress, types.

It imports nothing else of ours and knows nothing of privacy or of reinforcement learning.
"""
