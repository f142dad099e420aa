//! Texts with names in braces.

/// Puts texts in the place of their names in braces.
pub(crate) fn fill(template: &str, mut text_of: impl FnMut(&str) -> String) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{')
        && let Some((name, after)) = after.split_once('}')
    {
        text.extend([before, &text_of(name)]);
        rest = after;
    }
    text + rest
}
