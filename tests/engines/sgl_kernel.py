"""Stands in for SGLang's compiled kernels, whose build for processors is in no package registry.

SGLang imports their names in any case, but takes torch's operators where the processor's kernels are not
registered. A call of one of these is a fault of the launch options, and says so.
"""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_arguments, **_named):
        raise NotImplementedError(f"sgl_kernel.{name}: this is a stand-in without kernels")

    return missing
