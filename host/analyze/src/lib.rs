//! The method: from plan and records to figures. Pure: no clock, no async, no network.
