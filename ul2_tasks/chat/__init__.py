"""Conversations: from messages to tokens, and what of them is learned."""
