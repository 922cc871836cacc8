//! Tables: captioned, scrollable by keyboard where they are wide, numbers aligned.

use super::markup::put;

/// A column: its heading (own text, may hold markup) and whether it holds numbers.
#[derive(Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    number: bool,
}

/// A column of text.
pub(super) const fn text(title: &'static str) -> Column {
    Column {
        title,
        number: false,
    }
}

/// A column of numbers.
pub(super) const fn number(title: &'static str) -> Column {
    Column {
        title,
        number: true,
    }
}

/// A table under construction. Cells are markup: texts from outside must be escaped by the caller.
pub(super) struct Table {
    caption: String,
    columns: Vec<Column>,
    body: String,
    rows: usize,
    class: &'static str,
}

impl Table {
    /// A table without rows. The first column holds the rows' headings.
    pub(super) fn new(caption: &str, columns: &[Column]) -> Self {
        Self {
            caption: caption.to_owned(),
            columns: columns.to_vec(),
            body: String::new(),
            rows: 0,
            class: "",
        }
    }

    /// With a class of its own.
    pub(super) fn class(mut self, class: &'static str) -> Self {
        self.class = class;
        self
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: &[String]) {
        self.classed_row("", cells);
    }

    /// Adds a row with a class.
    pub(super) fn classed_row(&mut self, class: &str, cells: &[String]) {
        self.rows += 1;
        if class.is_empty() {
            self.body.push_str("<tr>");
        } else {
            put!(self.body, "<tr class=\"{class}\">");
        }
        for (i, cell) in cells.iter().enumerate() {
            let number = self.columns.get(i).is_some_and(|c| c.number);
            let class = if number { " class=\"n\"" } else { "" };
            if i == 0 {
                put!(self.body, "<th scope=\"row\"{class}>{cell}</th>");
            } else {
                put!(self.body, "<td{class}>{cell}</td>");
            }
        }
        self.body.push_str("</tr>");
    }

    /// Whether it has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The markup.
    pub(super) fn finish(self) -> String {
        let mut out = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table, scrolls sideways\"><table class=\"{}\"><caption>{}</caption><thead><tr>",
            self.class, self.caption
        );
        for column in &self.columns {
            let class = if column.number { " class=\"n\"" } else { "" };
            put!(out, "<th scope=\"col\"{class}>{}</th>", column.title);
        }
        out.push_str("</tr></thead><tbody>");
        out.push_str(&self.body);
        out.push_str("</tbody></table></div>");
        out
    }
}
