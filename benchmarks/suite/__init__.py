"""What asv runs. Data is made in `setup`, a `time_` method is one call, `track_` returns a quality."""
