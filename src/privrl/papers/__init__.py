"""The papers, a folder each: `seo2020`, `xie2019`, `rajabi2022`, `ono2020`, `wang2019`.

In each: the algorithm in the paper's own line order (`algorithm`), the fast version and a learner
or estimator that yields the paper's claim, the printed numbers as data (`printed`), and the
experiments that run them again. What is certified is in `privrl.control` and `privrl.evaluation`.
"""
