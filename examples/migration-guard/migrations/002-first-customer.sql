INSERT INTO customers (name) VALUES ('the first');
