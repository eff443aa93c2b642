"""The loss in other people's trainers: `attach` for any of them, and one thin file per framework."""
