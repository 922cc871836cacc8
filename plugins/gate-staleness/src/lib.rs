//! G4: the dead endpoint stayed routable and took traffic.
