//! The plugin host: artifacts, grants, limits, and one adapter per world.
