"""What others send and expect, as pure functions: Open Inference v2, TensorFlow Serving, MLflow, Personalizer."""
