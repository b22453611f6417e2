"""The gRPC door: Open Inference's service, in front of the same application; the slower one.

call ─▶ server ─▶ translated: a request of HTTP ─▶ application ─▶ its reply, translated ─▶ message
"""
