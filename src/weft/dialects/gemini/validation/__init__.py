"""The rules of the generateContent API, and the state that their checks need."""
