//! What a campaign will do, before it does it: phases, arrivals, victims, grants, gates. Pure.
