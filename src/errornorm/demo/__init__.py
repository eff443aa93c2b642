"""The main job on an embedded default: six methods on a corpus full of copies, and a page about what came of it."""
