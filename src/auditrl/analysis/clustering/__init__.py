"""Strategy clustering (Rosu & Wang 2026, strategy clusters; the way of Clio, Tamkin et al. 2024): from audits to a codebook and shares.

    audits -> one abstract paragraph each -> vectors -> clusters, named from inside against outside -> clusters of clusters
    -> frozen codebook -> every audit classified -> composition over training, five plain categories

`sources` reads audits, `describe` and `rules` write the paragraphs (`leaks` checks them), `embed` makes vectors, `cluster` and `rollup`
group them, `names` and `categories` say what a group is, `codebook` freezes it all, `composition` counts. `pipeline` puts it together.
"""
