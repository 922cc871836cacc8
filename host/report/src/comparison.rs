//! What `compare --json` prints.

use blackstart_analyze::CampaignComparison;

/// JSON Schema of [`CampaignComparison`].
pub fn comparison_schema() -> serde_json::Value {
    schemars::schema_for!(CampaignComparison).to_value()
}
