"""Other libraries' ways to ask for a model: tables that lead to specs, no parts of their own."""
