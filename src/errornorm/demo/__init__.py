"""The main job on an embedded default: five methods on a corpus full of copies, and a page about what came of it."""
