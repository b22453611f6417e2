"""Packages two models of digits, of which one is much better."""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from skysail import package_sklearn

X, y = load_digits(return_X_y=True)
X = X.astype("float32")
linear = LogisticRegression(max_iter=1_000).fit(X[:900] / 16, y[:900])
bayes = GaussianNB(var_smoothing=1e-2).fit(X[:60] / 16, y[:60])
print(package_sklearn(linear, "models/linear", "linear", "1", sample_input=X[:5] / 16))
print(package_sklearn(bayes, "models/bayes", "bayes", "1", sample_input=X[:5] / 16))
