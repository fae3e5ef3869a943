"""How Sphinx builds the site; `python -m docs.build` runs it."""

project = "anyformer"
author = "the anyformer authors"
copyright = "the anyformer authors, Apache-2.0"
extensions = ["myst_parser", "docs.site.mathml", "docs.site.languages"]
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
myst_url_schemes = {"http": None, "https": None, "mailto": None, "beside": "{{path}}"}
suppress_warnings = ["misc.highlighting_failure"]  # shells and Python with … in it

html_theme = "furo"
html_title = "anyformer"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_search_summary = False  # summaries are fetched, which a page opened from a disk may not
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
