"""The streams of the AI SDK: model parts are read, UI message streams are read and written."""
