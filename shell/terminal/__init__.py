"""The prompt: input, completion, history, colours."""
