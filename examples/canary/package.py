"""Packages two versions of a model: the first has learnt from 15 images, the second from 1,000."""

from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from skysail import package_sklearn

X, y = load_digits(return_X_y=True)
X = X.astype("float32")
for version, rows in (("1", 15), ("2", 1_000)):
    model = GaussianNB(var_smoothing=1e-2).fit(X[:rows], y[:rows])
    print(package_sklearn(model, f"models/digits-{version}", "digits", version, sample_input=X[:5]))
    print(f"   right on {(model.predict(X[1_000:]) == y[1_000:]).mean():.0%} of images that it has not seen")
