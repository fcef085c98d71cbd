"""What mkdocs.yml names: how the site's Markdown draws math, tables, terms, addresses and figures."""
